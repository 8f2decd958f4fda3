//! The station's way to the mesh, which can be cut without either end hearing of it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Passes bytes on to one server, and none while it is cut: like a network that drops every packet and then heals,
/// when TCP sends again what was missing.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Relay {
    /// Its threads end with the experiment's process.
    pub(super) fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let cut = Arc::clone(&cut);
                thread::spawn(move || connect(client, server, &cut));
            }
        });
        Ok(Self { address, is_cut })
    }

    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

fn connect(client: TcpStream, server: SocketAddr, cut: &Arc<AtomicBool>) {
    wait(cut);
    // A server that is dead refuses, and the client's connection ends with this function.
    let Ok(server) = TcpStream::connect(server) else { return };
    let (Ok(back_from), Ok(back_to)) = (server.try_clone(), client.try_clone()) else { return };
    let back = Arc::clone(cut);
    thread::spawn(move || forward(back_from, back_to, &back));
    forward(client, server, cut);
}

fn forward(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        wait(cut);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    wait(cut);
    // An end that is gone tells the other, as its kernel would; one that is closed already is no matter.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn wait(cut: &AtomicBool) {
    while cut.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY);
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(20);
