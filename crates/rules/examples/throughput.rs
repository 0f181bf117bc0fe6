//! How fast output is kept and split: `cargo run --release -p rules --example throughput`.

use std::hint::black_box;
use std::time::Instant;

use rules::{CappedOutput, LineSplitter};

const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS: usize = 64 * 1024;

fn main() {
    let line = "x".repeat(99) + "\n";
    let chunk = &line.repeat(CHUNK_BYTES / line.len() + 1).into_bytes()[..CHUNK_BYTES];

    let began = Instant::now();
    let mut output = CappedOutput::new(16 << 20);
    (0..CHUNKS).for_each(|_| output.push(black_box(chunk)));
    report("capped output, kept", began);
    let began = Instant::now();
    let text = black_box(output.finish().into_text());
    println!("capped output, made text ({} bytes): {:?}", text.len(), began.elapsed());

    for (name, chunk) in [("lines of 100 bytes", chunk), ("one line without end", &[b'x'; CHUNK_BYTES][..])] {
        let began = Instant::now();
        let (mut splitter, mut pieces) = (LineSplitter::new(), 0u64);
        for _ in 0..CHUNKS {
            let mut rest = black_box(chunk);
            while let Some(piece) = splitter.next_piece(&mut rest) {
                black_box(piece);
                pieces += 1;
            }
        }
        report(&format!("{name}, {pieces} pieces"), began);
    }
}

fn report(name: &str, began: Instant) {
    let gb = (CHUNKS * CHUNK_BYTES) as f64 / 1e9;
    println!("{name}: {:.2} GB/s", gb / began.elapsed().as_secs_f64());
}
