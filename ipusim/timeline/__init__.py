"""What happened: integer columns of spans, recorded by the machine and read by everything else."""
