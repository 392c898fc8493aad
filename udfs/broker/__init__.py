"""What the broker does around its store: processors, managers, delayed and transactional messages."""
