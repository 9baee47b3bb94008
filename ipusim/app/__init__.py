"""What people ask of the simulator: scenarios, pictures, commands, comparisons, sweeps and advice."""
