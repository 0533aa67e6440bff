//! What a shell cannot try by itself.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use crate::world::ESCAPED;

/// A request of ptrace.
const SEIZE: usize = 0x4206;

fn escaped(done: bool) {
    if done {
        println!("{ESCAPED}");
    }
}

/// Makes the call and says whether the kernel took it.
fn call(number: i64, arguments: [usize; 6]) -> bool {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the calls below get numbers, and pointers to memory that outlives them.
    unsafe { libc::syscall(number, a, b, c, d, e, f) >= 0 }
}

#[test]
#[ignore = "run by the rows of the table, inside the sandbox"]
fn helper() {
    let Ok(attempt) = std::env::var("ATTEMPT") else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let socket = std::env::var_os("SOCKET").unwrap();
    let victim = number("VICTIM");
    match attempt.as_str() {
        // Of a process that is not there; a kernel that takes the call says so.
        "ptrace" => {
            let taken = call(libc::SYS_ptrace, [SEIZE, 0x7fff_fff0, 0, 0, 0, 0]);
            let said = std::io::Error::last_os_error().raw_os_error();
            escaped(taken || said == Some(libc::ESRCH));
        }
        "ptrace-victim" => {
            escaped(call(libc::SYS_ptrace, [SEIZE, victim, 0, 0, 0, 0]));
        }
        "vm-read" => {
            let (from, mut to) = (7_u64, 0_u64);
            let vector = |at: *mut u64| libc::iovec {
                iov_base: at.cast(),
                iov_len: 8,
            };
            let local = vector(&raw mut to);
            let remote = vector((&raw const from).cast_mut());
            let own = std::process::id() as usize;
            let (local, remote) = (&raw const local as usize, &raw const remote as usize);
            escaped(call(
                libc::SYS_process_vm_readv,
                [own, local, 1, remote, 1, 0],
            ));
        }
        "tcp" => {
            let port = u16::try_from(number("TCP")).unwrap();
            escaped(TcpStream::connect(("127.0.0.1", port)).is_ok());
        }
        "listen" => escaped(TcpListener::bind("127.0.0.1:0").is_ok()),
        "udp" => {
            let port = u16::try_from(number("UDP")).unwrap();
            let sent = UdpSocket::bind("127.0.0.1:0")
                .and_then(|socket| socket.send_to(b"x", ("127.0.0.1", port)));
            escaped(sent.is_ok());
        }
        "unix" => escaped(UnixStream::connect(socket).is_ok()),
        "unix-listen" => escaped(UnixListener::bind("own-socket").is_ok()),
        "unix-datagram" => escaped(UnixDatagram::unbound().is_ok()),
        "abstract" => {
            let name = format!("threadline-{}", std::process::id());
            let name = SocketAddr::from_abstract_name(name).unwrap();
            escaped(UnixListener::bind_addr(&name).is_ok());
        }
        "netlink" => {
            const NETLINK: usize = 16;
            escaped(call(libc::SYS_socket, [NETLINK, 3, 0, 0, 0, 0]));
        }
        "io-uring" => {
            let parameters = [0_u8; 256];
            let at = parameters.as_ptr() as usize;
            escaped(call(libc::SYS_io_uring_setup, [1, at, 0, 0, 0, 0]));
        }
        "user-namespace" => {
            const NEWUSER: usize = 0x1000_0000;
            escaped(call(libc::SYS_unshare, [NEWUSER, 0, 0, 0, 0, 0]));
        }
        "keyring" => escaped(call(libc::SYS_keyctl, [0, usize::MAX - 2, 1, 0, 0, 0])),
        "chmod-by-handle" => {
            use std::os::unix::fs::PermissionsExt as _;
            let file = std::fs::File::open("../outside/file").unwrap();
            let _ = file.set_permissions(std::fs::Permissions::from_mode(0o777));
        }
        "truncate-by-handle" => {
            let file = std::fs::OpenOptions::new().write(true).open("link-out");
            let _ = file.and_then(|file| file.set_len(0));
        }
        other => panic!("no attempt is called {other}"),
    }
    std::io::stdout().flush().unwrap();
}
