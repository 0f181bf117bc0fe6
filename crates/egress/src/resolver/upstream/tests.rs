//! Reading and rereading a `resolv.conf`.

use std::io::Write;

use super::*;

#[test]
fn servers_are_read_as_the_c_library_reads_them() {
    let text = "# nameserver 192.0.2.9\nsearch corp.example\nnameserver 192.0.2.1\n  nameserver\t2001:db8::1 # one\n\
                nameserver nonsense\noptions ndots:5\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n";
    let read: Vec<String> = listed(text).iter().map(ToString::to_string).collect();
    assert_eq!(read, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"]);
    assert_eq!(listed("search example\n"), [DEFAULT_SERVER]);
}

#[test]
fn a_changed_file_is_read_again() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let before = Instant::now().checked_sub(2 * CHECK_INTERVAL).unwrap();
    let servers = listed("nameserver 192.0.2.1");
    let mut system =
        System { clients: Clients::of(&servers).unwrap(), servers, changed: None, looked: before };
    writeln!(file, "nameserver 192.0.2.2").unwrap();
    system.now(file.path());
    assert_eq!(system.servers, listed("nameserver 192.0.2.2"));

    writeln!(file, "nameserver 192.0.2.3").unwrap();
    file.as_file().set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
    system.now(file.path());
    assert_eq!(system.servers.len(), 1, "not again within a second");
    system.looked = before;
    system.now(file.path());
    assert_eq!(system.servers.len(), 2);

    let path = file.path().to_owned();
    drop(file);
    system.looked = before;
    system.now(&path);
    assert_eq!(system.servers.len(), 2, "those that are known stay");
}
