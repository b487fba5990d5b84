"""From records to rows: which decoder, which columns, values of each format."""
