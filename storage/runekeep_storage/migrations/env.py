"""Alembic's entry point: runs the migrations on the connection that runekeep_storage.migrations.migrate passes."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
