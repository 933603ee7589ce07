"""TaskService: tasks, and watching them."""
