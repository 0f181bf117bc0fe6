//! The local terminal, in raw mode during `sbx shell`. Dropping the guard restores the mode. A panic of any thread
//! restores it before the panic message is printed.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{self, OptionalActions, Termios};

/// The mode to restore, while the terminal is raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keeps the terminal raw until dropped.
pub struct Raw(());

impl Raw {
    /// Enters raw mode: keys are delivered as typed, including Ctrl-C, without echo.
    pub fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                previous(panic);
            }));
        });
        let before = termios::tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let guard = Self(());
        termios::tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Fails if the terminal was closed.
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, &before);
    }
}

/// Whether standard input and output are a terminal.
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Columns of the terminal on standard error, if known.
pub fn stderr_columns() -> Option<usize> {
    let size = termios::tcgetwinsize(io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Columns and rows of the terminal.
pub fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(io::stdout()).ok()?;
    let cells = |cells: u16| cells.clamp(1, 1000);
    (size.ws_col > 0 && size.ws_row > 0).then(|| (cells(size.ws_col), cells(size.ws_row)))
}
