//! A relay between a client and a station, which can be interrupted.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards connections until the test interrupts it.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    open: Vec<TcpStream>,
}

impl Relay {
    pub(crate) fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let mut state = shared.lock().unwrap();
                if state.is_cut {
                    return;
                }
                // While the station restarts, it refuses connections. The relay then closes the new
                // connection.
                let Ok(to) = TcpStream::connect(to) else { continue };
                for (from, to) in [(&from, &to), (&to, &from)] {
                    state.open.push(from.try_clone().unwrap());
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || pass(from, to));
                }
            }
        });
        Self { address, state }
    }

    /// Closes all connections, and accepts no more.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
        // A last connection wakes the accepting thread, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
