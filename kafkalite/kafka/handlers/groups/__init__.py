"""Group APIs: membership, a file per protocol; `offsets` and `administration` are for all of them."""
