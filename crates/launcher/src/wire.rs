//! Messages with open files over a Unix socket of the type SEQPACKET, which preserves their bounds.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most snapshots among the layers of a container.
pub const MAX_SNAPSHOTS: usize = 16;
/// The most files in one message.
pub const MAX_FILES: usize = 3 + MAX_SNAPSHOTS;
/// A plan has a few kilobytes, and one with the most layers a hundred.
const MAX_BYTES: usize = 128 * 1024;

/// Sends one message with open files, as a whole. Fails with `EMSGSIZE` beyond [`MAX_FILES`] and 128 KiB.
pub fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_BYTES || files.len() > MAX_FILES {
        return Err(io::Error::from(rustix::io::Errno::MSGSIZE));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    // A peer that has ended is an error, not a signal.
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message; `None` if the peer has closed its end.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    let message = postcard::from_bytes(&bytes[..received.bytes]).map_err(io::Error::other)?;
    Ok(Some((message, files)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::Report;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn messages_and_their_files_arrive_in_order() {
        let (here, there) = pair();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        send(&here, &Report::Forked { pid: 7 }, &[writer.as_fd()]).unwrap();
        send(&here, &Report::Done, &[]).unwrap();
        drop((here, writer));
        let (report, files) = receive::<Report>(&there).unwrap().unwrap();
        assert_eq!((report, files.len()), (Report::Forked { pid: 7 }, 1));
        for file in files {
            File::from(file).write_all(b"through").unwrap();
        }
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert_eq!(receive::<Report>(&there).unwrap().unwrap().0, Report::Done);
        assert!(receive::<Report>(&there).unwrap().is_none());
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error() {
        let (here, there) = pair();
        rustix::io::write(&here, &[0xff; 20]).unwrap();
        assert!(receive::<Report>(&there).is_err());
    }
}
