//! Who this sandbox is: its host name, and a generation, which differs for each copy of its processes. Called by `boot` and `serve`.

use guest_proto::RefusalKind;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// Programs that must not repeat random numbers read this file. On the sandbox's own `/dev`, which exists with any image.
const GENERATION: &str = "/dev/sandbox-generation";
const UNFINISHED: &str = "/dev/.sandbox-generation";
const RANDOM_BYTES: usize = 16;

/// Takes a host name and a new generation.
pub fn adopt(host_name: &str) -> Result<(), (RefusalKind, String)> {
    let refused = |step: &'static str| move |errno| (RefusalKind::Failed, format!("cannot {step}: {errno}"));
    rustix::system::sethostname(host_name.as_bytes()).map_err(refused("set the host name"))?;
    renew_generation().map_err(refused("write /dev/sandbox-generation"))
}

/// Replaces the file of the generation, so that readers see the old one or the new one.
pub fn renew_generation() -> Result<(), Errno> {
    let mut random = [0; RANDOM_BYTES];
    // Not a device file, which a command may have replaced by something that blocks.
    rustix::rand::getrandom(&mut random[..], GetRandomFlags::empty())?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).chain(["\n".to_owned()]).collect();
    // Whatever a command has put there. Fails if there is nothing.
    let _ = rustix::fs::unlink(UNFINISHED);
    for directory in [UNFINISHED, GENERATION] {
        let _ = rustix::fs::unlinkat(CWD, directory, AtFlags::REMOVEDIR);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, UNFINISHED, flags, Mode::from_raw_mode(0o444))?;
    rustix::io::write(&file, text.as_bytes())?;
    rustix::fs::rename(UNFINISHED, GENERATION)
}
