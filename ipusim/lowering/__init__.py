"""From an Order to a Plan: each sync mode is one lowering, and what stands around passes is put in by others."""
