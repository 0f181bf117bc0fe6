//! The local terminal, in raw mode during `sbx shell`. Dropping the guard restores the mode. A panic of any thread
//! restores it before the panic message is printed.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::{Mutex, Once};

use base::IgnorePoison;
use rustix::termios::{self, OptionalActions, SpecialCodeIndex, Termios};

/// How long a terminal may take to answer, in tenths of a second.
const ANSWER_TENTHS: u8 = 3;
/// The longest answer that is read.
const ANSWER_BYTES: usize = 256;

/// The mode to restore, while the terminal is raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keeps the terminal raw until dropped.
pub struct Raw(());

impl Raw {
    /// Enters raw mode: keys are delivered as typed, including Ctrl-C, without echo.
    pub fn enter() -> io::Result<Self> {
        Self::enter_with(|_| {})
    }

    /// The same with further changes of the mode.
    fn enter_with(change: impl FnOnce(&mut Termios)) -> io::Result<Self> {
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
        change(&mut raw);
        *BEFORE.lock().ignore_poison() = Some(before);
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
    if let Some(before) = BEFORE.lock().ignore_poison().take() {
        // Fails if the terminal was closed.
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, &before);
    }
}

/// Sends a request to the terminal. Returns its answer up to the byte `end`, or what has arrived in time. Keys that the user presses
/// meanwhile are lost.
pub fn ask(request: &str, end: u8) -> io::Result<Vec<u8>> {
    let _raw = Raw::enter_with(|mode| {
        // A read returns at the latest after this time, with or without a byte.
        mode.special_codes[SpecialCodeIndex::VMIN] = 0;
        mode.special_codes[SpecialCodeIndex::VTIME] = ANSWER_TENTHS;
    })?;
    let mut out = io::stdout().lock();
    out.write_all(request.as_bytes())?;
    out.flush()?;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    let mut input = io::stdin().lock();
    while answer.len() < ANSWER_BYTES && input.read(&mut byte)? == 1 {
        answer.extend(byte);
        if byte[0] == end {
            break;
        }
    }
    Ok(answer)
}

/// Whether standard input and output are a terminal.
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Whether standard input is a terminal.
pub fn is_input() -> bool {
    io::stdin().is_terminal()
}

/// Columns of the terminal on standard error, if known.
pub fn stderr_columns() -> Option<usize> {
    let size = termios::tcgetwinsize(io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Columns and rows of the terminal, which is that of standard input if the output is not one.
pub fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(io::stdout()).or_else(|_| termios::tcgetwinsize(io::stdin())).ok()?;
    let cells = |cells: u16| cells.clamp(1, 1000);
    (size.ws_col > 0 && size.ws_row > 0).then(|| (cells(size.ws_col), cells(size.ws_row)))
}
