"""Parts of prompts: rules, memory types, transcripts and records between delimiters."""
