//! HTTP and SSE over the agent, with the embedded web page
