//! CRC-32 with the polynomial of IEEE 802.3, as in Ethernet and gzip. It finds damage by accident, not by intent.

/// The checksum of the parts one after another.
pub fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = !0u32;
    for byte in parts.iter().copied().flatten() {
        crc = TABLE[usize::from((crc as u8) ^ byte)] ^ (crc >> 8);
    }
    !crc
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut value = n as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[n] = value;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_matches_the_check_value_however_the_bytes_are_divided() {
        // The value that catalogues of checksums give for this one, which they call CRC-32/ISO-HDLC.
        let divided: [&[&[u8]]; 3] = [&[b"123456789"], &[b"1234", b"56789"], &[b"", b"12345678", b"9"]];
        for parts in divided {
            assert_eq!(crc32(parts), 0xcbf4_3926);
        }
        assert_eq!(crc32(&[]), 0);
        assert_eq!(crc32(&[b""]), 0);
    }

    #[test]
    fn each_changed_bit_changes_it() {
        let before = *b"sandbox";
        for bit in 0..before.len() * 8 {
            let mut after = before;
            after[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc32(&[&after]), crc32(&[&before]), "bit {bit}");
        }
    }
}
