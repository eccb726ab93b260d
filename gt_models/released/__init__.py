"""What the authors' released code does otherwise than the paper: one file per paper, overriding only what differs, each override with its reason."""
