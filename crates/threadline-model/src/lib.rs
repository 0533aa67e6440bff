//! Model providers: streaming, retries and dialects
