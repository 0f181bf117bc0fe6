//! A thread that owns one kernel resource, such as a netlink socket or the firewall table.
//!
//! Netlink calls and `nft` block until the kernel has answered, which can take tens of milliseconds while the kernel removes
//! links. An async worker must not wait for that. Each [`OwnerThread`] therefore keeps its state to itself and runs requests
//! one at a time, in the order in which they were queued; callers wait for the reply asynchronously. The queue is bounded: if
//! it is full, callers wait for a free slot.
//!
//! A request that panics fails with an error that names it. The panic is logged, [`Owned::after_panic`] may repair
//! the state, and the thread continues with the next request. If the thread ends nevertheless, this is logged and
//! later requests fail.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use netlink::RouteSocket;
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the thread. Each sandbox has one change at a time, and DNS bounds its own questions.
const QUEUE_MAX: usize = 1024;

/// State that a thread owns.
pub trait Owned: Send + 'static {
    /// Brings the state back to a consistent one after a request panicked.
    fn after_panic(&mut self) {}
}

impl Owned for RouteSocket {}

struct Request<S> {
    /// The step for error messages: "find a link".
    what: &'static str,
    work: Box<dyn FnOnce(&mut S) + Send>,
}

/// Runs requests on a state of its own. The thread ends when this is dropped and the queue is empty.
pub struct OwnerThread<S> {
    name: &'static str,
    requests: mpsc::Sender<Request<S>>,
}

impl<S: Owned> OwnerThread<S> {
    /// Starts the thread, in the network namespace of the calling thread. `name` has at most 15 bytes.
    pub fn spawn(name: &'static str, state: S) -> io::Result<Self> {
        let (requests, queue) = mpsc::channel(QUEUE_MAX);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _report = ReportPanic(name);
            run(name, state, queue);
        })?;
        Ok(Self { name, requests })
    }

    /// Runs a request and waits for its result. A caller that stops waiting does not cancel a queued request.
    pub async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&mut S) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (request, reply) = request(what, work);
        self.send(request).await?;
        reply.await.unwrap_or_else(|_| Err(self.failed(what)))
    }

    /// Like [`Self::call`], but if the caller stops waiting, the request is not started, or `undo` runs after it.
    pub async fn call_or_undo<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&mut S) -> io::Result<T> + Send + 'static,
        undo: impl FnOnce(&mut S) + Send + 'static,
    ) -> io::Result<T> {
        let (sender, reply) = oneshot::channel();
        let work = move |state: &mut S| {
            if !sender.is_closed() && sender.send(work(state)).is_err() {
                undo(state);
            }
        };
        self.send(Request { what, work: Box::new(work) }).await?;
        reply.await.unwrap_or_else(|_| Err(self.failed(what)))
    }

    async fn send(&self, request: Request<S>) -> io::Result<()> {
        let what = request.what;
        self.requests.send(request).await.map_err(|_| self.ended(what))
    }

    /// Like [`Self::call`], for a thread that may block. Panics on an async worker.
    pub fn call_blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&mut S) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (request, reply) = request(what, work);
        self.requests.blocking_send(request).map_err(|_| self.ended(what))?;
        reply.blocking_recv().unwrap_or_else(|_| Err(self.failed(what)))
    }

    fn ended(&self, what: &str) -> io::Error {
        io::Error::other(format!("cannot {what}: the thread {} has ended; restart the daemon", self.name))
    }

    fn failed(&self, what: &str) -> io::Error {
        io::Error::other(format!("cannot {what}: the thread {} panicked; see the log", self.name))
    }
}

fn request<S, T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce(&mut S) -> io::Result<T> + Send + 'static,
) -> (Request<S>, oneshot::Receiver<io::Result<T>>) {
    let (sender, reply) = oneshot::channel();
    // The caller may have stopped waiting.
    let work = Box::new(move |state: &mut S| drop(sender.send(work(state))));
    (Request { what, work }, reply)
}

fn run<S: Owned>(name: &'static str, mut state: S, mut queue: mpsc::Receiver<Request<S>>) {
    while let Some(Request { what, work }) = queue.blocking_recv() {
        // The state may be inconsistent after a panic; `after_panic` repairs it.
        if catch_unwind(AssertUnwindSafe(|| work(&mut state))).is_err() {
            tracing::error!(
                thread = name,
                request = what,
                "a network request panicked; its caller gets an error"
            );
            state.after_panic();
        }
    }
}

/// Logs when the thread ends by a panic outside of a request.
struct ReportPanic(&'static str);

impl Drop for ReportPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(
                thread = self.0,
                "a network thread has ended; creating sandboxes fails until a restart"
            );
        }
    }
}

#[cfg(test)]
mod tests;
