//! Pipes whose command has ended while something it left in the background still writes. They are read and thrown away,
//! so that the writer neither blocks nor dies of SIGPIPE.
//!
//! Bounded: with [`MOST`] of them open, the oldest is closed for the next.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::io::Errno;

use crate::poll::{Interest, Poll, Role, Token};

const MOST: usize = 256;
/// Reads of one drain in one turn.
const READS: usize = 8;

/// The pipes that are read for nobody.
#[derive(Default)]
pub struct Drains {
    open: VecDeque<(u64, Rc<OwnedFd>)>,
    ready: VecDeque<u64>,
}

impl Drains {
    /// Takes a pipe over. Its first event comes at once if there is anything to read.
    pub fn take(&mut self, fd: Rc<OwnedFd>, serial: u64, poll: &Poll) {
        if poll.hand_over(&*fd, Token { serial, role: Role::Drain }, Interest::Read).is_err() {
            return;
        }
        if self.open.len() == MOST {
            self.open.pop_front();
        }
        self.open.push_back((serial, fd));
    }

    /// An event of one of them.
    pub fn stirred(&mut self, serial: u64) {
        if !self.ready.contains(&serial) {
            self.ready.push_back(serial);
        }
    }

    /// Whether there is something to read.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Gives each ready one its turn.
    pub fn run(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(serial) = self.ready.pop_front() else { return };
            // Oldest first, serials grow: the list is sorted.
            let Ok(at) = self.open.binary_search_by_key(&serial, |(serial, _)| *serial) else { continue };
            match empty(&self.open[at].1) {
                State::Empty => {}
                State::More => self.ready.push_back(serial),
                State::Ended => drop(self.open.remove(at)),
            }
        }
    }
}

enum State {
    Empty,
    More,
    Ended,
}

fn empty(fd: &OwnedFd) -> State {
    let mut scratch = [const { MaybeUninit::<u8>::uninit() }; 16 * 1024];
    for _ in 0..READS {
        match rustix::io::read(fd, &mut scratch) {
            Ok(([], _)) => return State::Ended,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return State::Empty,
            Err(_) => return State::Ended,
        }
    }
    State::More
}
