//! The agent: runs, steps, tools, approvals and policy over a durable session
