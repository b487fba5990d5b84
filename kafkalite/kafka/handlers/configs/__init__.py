"""Configurations as clients see them: of topics and brokers, and of groups and client metrics (`entities`)."""
