"""Arrow types and schemas of declared columns: what the judge, the tables and the sinks share."""
