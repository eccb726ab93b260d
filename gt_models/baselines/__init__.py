"""What the papers compare with: thin where torch_geometric has the layer."""
