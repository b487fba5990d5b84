"""What must hold in a simulated cluster, looked at from outside the product."""
