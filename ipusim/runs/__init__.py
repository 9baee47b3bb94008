"""The one road from a request to a result: Request, assemble, Job, execute, Run."""
