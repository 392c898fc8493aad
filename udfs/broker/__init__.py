"""The broker around its store: processors, managers, delayed and transactional messages."""
