"""Delta tables written by Millrace itself: stage files in the tasks, apply them in one commit, read what is live."""
