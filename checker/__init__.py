"""The black-box checker: random load and faults against a running platform, and the verdict on what came out of it.

It sees what a customer and an operator can see: its own requests, the REST API, the topics, the tables on disk. It shares no
code with the platform, so that a mistake in the platform cannot hide itself here."""
