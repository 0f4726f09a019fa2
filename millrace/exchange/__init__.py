"""Every channel between the platform's processes other than Kafka, one module each.

A module's class keeps the records in files below the home. Its docstring says who writes, who reads, and what happens if the
records are lost. Mailboxes are small values that can be pickled: Spark ships them to the workers."""
