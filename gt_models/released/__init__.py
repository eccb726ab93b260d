"""What the authors' released code does differently from the paper: one file per paper."""
