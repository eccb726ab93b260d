"""Several cells on one machine, and jobs on Slurm."""
