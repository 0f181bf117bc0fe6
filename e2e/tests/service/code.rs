//! The code interpreter.

mod hostile;
mod interpreter;
