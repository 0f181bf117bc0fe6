use super::*;

#[test]
fn an_event_is_framed_whatever_its_data() {
    let framed = |data: &str| {
        let mut chunk = BytesMut::new();
        write_event(&mut chunk, "stdout", data, None);
        String::from_utf8(chunk.to_vec()).unwrap()
    };
    assert_eq!(framed("a b"), "event: stdout\ndata: a b\n\n");
    assert_eq!(framed(""), "event: stdout\ndata: \n\n");
    assert_eq!(framed(" a"), "event: stdout\ndata:  a\n\n");
    assert_eq!(framed("10%\r20%\r"), "event: stdout\ndata: 10%\ndata: 20%\ndata: \n\n");
}
