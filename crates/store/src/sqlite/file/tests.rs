use super::*;

fn database() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sandboxd.db");
    (directory, path)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn refusal(path: &Path) -> String {
    open(path).unwrap_err().to_string()
}

#[test]
fn settings_are_what_durability_needs() {
    let (_directory, path) = database();
    let connection = open(&path).unwrap();
    let text = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("journal_mode"), "wal");
    // 2 is FULL.
    assert_eq!(pragma(&connection, "synchronous").unwrap(), 2);
    assert_eq!(pragma(&open_checkpointer(&path).unwrap(), "synchronous").unwrap(), 2);
    assert_eq!(pragma(&connection, "application_id").unwrap(), APPLICATION_ID);
    assert_eq!(pragma(&connection, "user_version").unwrap(), MIGRATIONS.len() as i64);
}

#[test]
fn only_the_owner_reads_the_files() {
    let (directory, path) = database();
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let connection = open(&path).unwrap();
    connection.execute_batch("CREATE TABLE something (a)").unwrap();
    let modes: Vec<u32> =
        fs::read_dir(directory.path()).unwrap().map(|entry| mode(&entry.unwrap().path())).collect();
    assert_eq!(modes, [OWNER_ONLY; 3], "the file, its log and the log's index");
}

#[test]
fn a_reader_cannot_write() {
    let (_directory, path) = database();
    let _writer = open(&path).unwrap();
    let reader = open_reader(&path).unwrap();
    let error = reader.execute_batch("DELETE FROM sandboxes").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ReadOnly));
}

#[test]
fn a_missing_directory_is_named() {
    let (directory, _) = database();
    let path = directory.path().join("nowhere/s.db");
    let message = refusal(&path);
    assert!(message.contains("nowhere/s.db") && message.contains("No such file"), "{message}");
}

#[test]
fn a_newer_database_is_left_alone() {
    let (_directory, path) = database();
    open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
    let known = MIGRATIONS.len() as i64;
    let error = open(&path).unwrap_err();
    assert_eq!(error, StoreError::TooNew { path, found: 9, known });
    assert!(
        error.to_string().contains("has version 9 and this program knows up to 1; run the newer program")
    );
}

#[test]
fn a_failed_migration_leaves_the_version_before_and_can_be_repeated() {
    let (_directory, path) = database();
    let mut connection = open(&path).unwrap();
    let broken = [MIGRATIONS[0], "CREATE TABLE two (a); CREATE TABLE two (a);"];
    let error = migrate(&mut connection, &path, &broken).unwrap_err();
    assert!(error.to_string().contains("table two already exists"), "{error}");
    assert_eq!(pragma(&connection, "user_version").unwrap(), 1);
    let mended = [MIGRATIONS[0], "CREATE TABLE two (a);", "CREATE TABLE three (a);"];
    migrate(&mut connection, &path, &mended).unwrap();
    assert_eq!(pragma(&connection, "user_version").unwrap(), 3);
    assert!(matches!(migrate(&mut connection, &path, &MIGRATIONS), Err(StoreError::TooNew { found: 3, .. })));
}

#[test]
fn files_of_others_are_left_alone() {
    let (_directory, path) = database();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (a)").unwrap();
    assert!(refusal(&path).contains("is no database of this service: it holds 1 tables or indexes"));
    other.pragma_update(None, "application_id", 7).unwrap();
    assert!(refusal(&path).contains("its application id is 0x7, ours is 0x73627864"));
    assert_eq!(pragma(&other, "user_version").unwrap(), 0);
}

#[test]
fn what_is_no_database_is_said_to_be_damaged() {
    let (_directory, path) = database();
    fs::write(&path, "hello, this is some text file and no database at all".repeat(100)).unwrap();
    let message = refusal(&path);
    assert!(message.contains("is damaged: file is not a database"), "{message}");
    assert!(message.contains("restore it from a backup, or move it away"), "{message}");
}

#[test]
fn a_damaged_schema_is_found_at_once() {
    let (_directory, path) = database();
    drop(open(&path).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    // The first page's content begins behind the header of 100 bytes.
    bytes[100..4096].fill(0xA5);
    fs::write(&path, bytes).unwrap();
    assert!(matches!(open(&path), Err(StoreError::Damaged { .. })));
}
