"""Why the checker can be trusted: a run that is right by construction, and damages that each check must find in it."""
