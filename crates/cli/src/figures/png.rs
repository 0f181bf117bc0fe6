//! Decodes PNG images, for terminals that want pixels: 8 bits per channel, without interlacing, as plotting libraries write them. Others
//! are not decoded. The data comes from a sandbox: sizes are bounded, and checksums do not matter.

use std::io::Read;

use flate2::read::ZlibDecoder;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Length, kind and checksum of a chunk.
const CHUNK_BYTES: usize = 12;
/// Bounds the memory: 4 bytes a pixel.
const MAX_PIXELS: usize = 16 << 20;

/// An image with opaque pixels of red, green and blue, row by row.
#[derive(Debug, PartialEq, Eq)]
pub struct Image {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<[u8; 3]>,
}

/// The header of an image.
#[derive(Debug, Clone, Copy)]
struct Header {
    width: usize,
    height: usize,
    /// Bytes of a pixel.
    channels: usize,
    has_palette: bool,
}

/// `None` if the image is damaged, or of a kind that is not decoded.
pub fn decode(bytes: &[u8]) -> Option<Image> {
    let mut rest = bytes.strip_prefix(SIGNATURE)?;
    let (mut header, mut palette, mut compressed) = (None, Vec::new(), Vec::new());
    while rest.len() >= CHUNK_BYTES {
        let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let data = rest.get(8..length.checked_add(8)?)?;
        match &rest[4..8] {
            b"IHDR" => header = Some(Header::read(data)?),
            b"PLTE" => palette = data.as_chunks::<3>().0.to_vec(),
            b"IDAT" => compressed.extend_from_slice(data),
            b"IEND" => break,
            _ => {}
        }
        rest = rest.get(length + CHUNK_BYTES..)?;
    }
    let header = header?;
    let rows = header.unfilter(&compressed)?;
    let pixels = rows.chunks_exact(header.channels).map(|pixel| header.color(pixel, &palette));
    Some(Image { width: header.width, height: header.height, pixels: pixels.collect::<Option<_>>()? })
}

impl Header {
    fn read(data: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?) as usize);
        let (width, height) = (number(0)?, number(4)?);
        let [bits, kind, _, _, interlacing] = *data.get(8..)?.first_chunk()?;
        let channels = match kind {
            0 | 3 => 1,
            4 => 2,
            2 => 3,
            6 => 4,
            _ => return None,
        };
        let pixels = width.checked_mul(height)?;
        let is_known = bits == 8 && interlacing == 0 && (1..=MAX_PIXELS).contains(&pixels);
        is_known.then_some(Self { width, height, channels, has_palette: kind == 3 })
    }

    /// Decompresses the rows, and undoes the filter of each, which is its first byte.
    fn unfilter(&self, compressed: &[u8]) -> Option<Vec<u8>> {
        let stride = self.width * self.channels;
        let mut filtered = Vec::new();
        let length = (stride + 1) * self.height;
        ZlibDecoder::new(compressed).take(length as u64).read_to_end(&mut filtered).ok()?;
        let mut rows = Vec::with_capacity(stride * self.height);
        let mut above = vec![0; stride];
        for line in filtered.chunks_exact(stride + 1) {
            let (filter, mut row) = (line[0], line[1..].to_vec());
            for at in 0..stride {
                let before = |values: &[u8]| at.checked_sub(self.channels).map_or(0, |at| values[at]);
                let (left, up, corner) = (before(&row), above[at], before(&above));
                let predicted = match filter {
                    0 => 0,
                    1 => left,
                    2 => up,
                    3 => u8::midpoint(left, up),
                    4 => paeth(left, up, corner),
                    _ => return None,
                };
                row[at] = row[at].wrapping_add(predicted);
            }
            rows.extend_from_slice(&row);
            above = row;
        }
        (rows.len() == stride * self.height).then_some(rows)
    }

    /// The color of a pixel on a white background; `None` if the palette lacks it.
    fn color(&self, pixel: &[u8], palette: &[[u8; 3]]) -> Option<[u8; 3]> {
        Some(match *pixel {
            [index] if self.has_palette => *palette.get(usize::from(index))?,
            [grey] => [grey; 3],
            [grey, alpha] => [on_white(grey, alpha); 3],
            [red, green, blue] => [red, green, blue],
            [red, green, blue, alpha] => [red, green, blue].map(|channel| on_white(channel, alpha)),
            _ => return None,
        })
    }
}

/// The neighbour that is nearest to a linear prediction, as the format defines it.
fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let predicted = i16::from(left) + i16::from(up) - i16::from(corner);
    let distance = |value: u8| (predicted - i16::from(value)).abs();
    if distance(left) <= distance(up) && distance(left) <= distance(corner) {
        left
    } else if distance(up) <= distance(corner) {
        up
    } else {
        corner
    }
}

fn on_white(channel: u8, alpha: u8) -> u8 {
    let (channel, alpha) = (u16::from(channel), u16::from(alpha));
    // At most 255.
    ((channel * alpha + 255 * (255 - alpha)) / 255) as u8
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&length[..], kind, data, &[0; 4]].concat()
    }

    /// An image with these filtered rows.
    fn image(width: u32, height: u32, kind: u8, palette: &[u8], rows: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(rows).unwrap();
        let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, kind, 0, 0, 0]].concat();
        let data = encoder.finish().unwrap();
        let (first, second) = data.split_at(data.len() / 2);
        let chunks = [
            chunk(b"IHDR", &header),
            chunk(b"PLTE", palette),
            chunk(b"IDAT", first),
            chunk(b"IDAT", second),
            chunk(b"IEND", b""),
        ];
        [SIGNATURE, &chunks.concat()].concat()
    }

    fn pixels(kind: u8, rows: &[u8]) -> Option<Vec<[u8; 3]>> {
        decode(&image(2, 1, kind, &[1, 2, 3, 4, 5, 6], rows)).map(|image| image.pixels)
    }

    #[test]
    fn colors_are_opaque_whatever_their_kind() {
        assert_eq!(pixels(2, &[0, 1, 2, 3, 4, 5, 6]).unwrap(), [[1, 2, 3], [4, 5, 6]]);
        assert_eq!(pixels(0, &[0, 7, 9]).unwrap(), [[7; 3], [9; 3]]);
        assert_eq!(pixels(3, &[0, 1, 0]).unwrap(), [[4, 5, 6], [1, 2, 3]]);
        assert_eq!(pixels(4, &[0, 7, 255, 7, 0]).unwrap(), [[7; 3], [255; 3]]);
        assert_eq!(pixels(6, &[0, 10, 20, 30, 255, 10, 20, 30, 0]).unwrap(), [[10, 20, 30], [255; 3]]);
    }

    #[test]
    fn filters_are_undone() {
        for (filter, second, expected) in [
            (0, [5, 5], [5, 5]),
            (1, [5, 5], [5, 10]),
            (2, [5, 5], [15, 25]),
            (3, [5, 5], [10, 20]),
            (4, [5, 5], [15, 25]),
        ] {
            let rows = [&[0, 10, 20, filter][..], &second].concat();
            let image = decode(&image(2, 2, 0, &[], &rows)).unwrap();
            assert_eq!(image.pixels[2..], expected.map(|grey| [grey; 3]), "filter {filter}");
        }
        assert_eq!((paeth(1, 2, 3), paeth(9, 1, 1), paeth(1, 9, 1)), (1, 9, 9));
    }

    #[test]
    fn damaged_and_unusual_images_are_not_decoded() {
        let whole = image(2, 1, 2, &[], &[0, 1, 2, 3, 4, 5, 6]);
        assert!(decode(&whole).is_some());
        for cut in [0, 8, 20, 40, whole.len() - 30] {
            assert_eq!(decode(&whole[..cut]), None, "{cut}");
        }
        // Interlaced, of 16 bits, with an unknown filter, without the color of the palette, and too large.
        let with = |at: usize, value: u8| {
            let mut changed = whole.clone();
            changed[at] = value;
            decode(&changed)
        };
        let header = SIGNATURE.len() + 8;
        assert_eq!((with(header + 12, 1), with(header + 8, 16), with(header, 255)), (None, None, None));
        assert_eq!((pixels(2, &[9, 1, 2, 3, 4, 5, 6]), pixels(3, &[0, 2, 0])), (None, None));
    }
}
