//! Pipes that background processes of an ended command still write to. Their output is read and dropped,
//! so that the writers neither block nor get SIGPIPE.
//!
//! Bounded: with [`MAX_OPEN`] of them open, the oldest is closed for the next.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::io::Errno;

use crate::poll::{Interest, Poll, PollToken, Role};

const MAX_OPEN: usize = 256;
/// Most reads of one pipe in one turn.
const MAX_READS: usize = 8;

/// The drained pipes.
#[derive(Default)]
pub struct Drains {
    open: VecDeque<(u64, Rc<OwnedFd>)>,
    ready: VecDeque<u64>,
}

impl Drains {
    /// Adds a pipe. It gets an event at once if there is something to read.
    pub fn take(&mut self, fd: Rc<OwnedFd>, serial: u64, poll: &Poll) {
        if poll.reassign(&*fd, PollToken { serial, role: Role::Drain }, Interest::Read).is_err() {
            return;
        }
        if self.open.len() == MAX_OPEN {
            self.open.pop_front();
        }
        self.open.push_back((serial, fd));
    }

    /// An event of one of them.
    pub fn on_event(&mut self, serial: u64) {
        if !self.ready.contains(&serial) {
            self.ready.push_back(serial);
        }
    }

    /// Whether there is something to read.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Reads each ready pipe.
    pub fn run(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(serial) = self.ready.pop_front() else { return };
            // Serials grow, so the list is sorted by age.
            let Ok(at) = self.open.binary_search_by_key(&serial, |(serial, _)| *serial) else { continue };
            match empty(&self.open[at].1) {
                DrainState::Empty => {}
                DrainState::More => self.ready.push_back(serial),
                DrainState::Ended => drop(self.open.remove(at)),
            }
        }
    }
}

enum DrainState {
    Empty,
    More,
    Ended,
}

fn empty(fd: &OwnedFd) -> DrainState {
    let mut scratch = [const { MaybeUninit::<u8>::uninit() }; 16 * 1024];
    for _ in 0..MAX_READS {
        match rustix::io::read(fd, &mut scratch) {
            Ok(([], _)) => return DrainState::Ended,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return DrainState::Empty,
            Err(_) => return DrainState::Ended,
        }
    }
    DrainState::More
}
