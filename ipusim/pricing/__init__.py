"""What a Plan costs on a System: work, bytes and meetings become whole cycles here, once for a run."""
