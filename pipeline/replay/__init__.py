"""Pull requests x tables -> answers, as a batch."""
