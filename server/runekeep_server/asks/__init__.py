"""Answers questions: hands them to extractors, and answers with a recall where no model does."""
