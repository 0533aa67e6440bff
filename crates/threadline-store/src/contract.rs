//! The suite that every backend must pass.
