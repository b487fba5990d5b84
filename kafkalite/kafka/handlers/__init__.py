"""One module per API group. A handler is called with the request and its decoded message; see `kafkalite.kafka.apis`."""
