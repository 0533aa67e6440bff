//! The session store: all semantics once, over a small backend seam
