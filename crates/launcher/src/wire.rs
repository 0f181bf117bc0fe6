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

    #[test]
    fn a_message_that_is_too_large_is_not_sent() {
        let (here, there) = pair();
        let large = Report::Failed { step: "x".repeat(MAX_BYTES), error: 1 };
        let refused = send(&here, &large, &[]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::MSGSIZE.raw_os_error()));
        let files = vec![here.as_fd(); MAX_FILES + 1];
        assert!(send(&here, &Report::Done, &files).is_err());
        send(&here, &Report::Done, &files[1..]).unwrap();
        let (report, received) = receive::<Report>(&there).unwrap().unwrap();
        assert_eq!((report, received.len()), (Report::Done, MAX_FILES));
    }

    #[test]
    fn a_message_of_the_largest_size_arrives_whole() {
        let (here, there) = pair();
        // The rest is the variant, the length of the text and the number.
        let step = "x".repeat(MAX_BYTES - 16);
        let sent = Report::Failed { step, error: i32::MAX };
        send(&here, &sent, &[]).unwrap();
        assert_eq!(receive::<Report>(&there).unwrap().unwrap().0, sent);
    }

    #[test]
    fn a_plan_is_read_back() {
        let flags = crate::MountFlags { read_only: true, ..Default::default() };
        let mount = |source| crate::Mount { source, target: "/x".into(), flags };
        let nodes = vec![crate::Node { name: "null".to_owned(), major: 1, minor: 3 }];
        let parameters = vec![("size".to_owned(), Some("1k".to_owned())), ("newinstance".to_owned(), None)];
        let plan = crate::ContainerPlan {
            daemon: 1,
            place: "/place".into(),
            layers: vec![crate::Layer::Snapshot, crate::Layer::Directory("/layer".into())],
            uid_base: 1 << 16,
            host_name: "name".to_owned(),
            cgroups: vec![crate::CgroupEntry { tasks: None, visible: Some(("/a".into(), "/b".into())) }],
            mounts: vec![
                mount(crate::MountSource::Sys),
                mount(crate::MountSource::Bind("/y".into())),
                mount(crate::MountSource::Devices { parameters: parameters.clone(), nodes }),
                mount(crate::MountSource::New {
                    kind: crate::FileSystem::Devpts,
                    name: "devpts".to_owned(),
                    parameters,
                }),
            ],
            links: vec![("/dev/fd".into(), "/proc/self/fd".into())],
            masked: vec!["/proc/kcore".into()],
            replaced: vec![("/proc/version".into(), "text".to_owned())],
            read_only: vec!["/proc/sys".into()],
            limits: vec![(7, u64::MAX)],
            network_settings: vec![("/proc/sys/net/x".into(), "1".to_owned())],
            capabilities: u64::MAX,
            filter: vec![(6, 1, 2, u32::MAX)],
            command: vec!["/agent".to_owned()],
        };
        let (here, there) = pair();
        send(&here, &plan, &[]).unwrap();
        assert_eq!(receive::<crate::ContainerPlan>(&there).unwrap().unwrap().0, plan);
    }
}
