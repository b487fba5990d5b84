"""The console: what people see and do in a browser, on every node's HTTP port."""
