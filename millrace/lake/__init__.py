"""Delta tables written by Millrace itself: tasks stage files, one commit adds them, readers see live rows."""
