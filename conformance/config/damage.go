package config

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// damage changes one byte of a value in a member's revision log, and the
// checksum of its record with it: what a memory error before the write leaves,
// and no checksum finds.
func damage(dataDir, value string) error {
	files, err := filepath.Glob(filepath.Join(dataDir, "member", "*", "*.seg"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for offset := 32; offset+24 <= len(content); {
			length := int(binary.LittleEndian.Uint32(content[offset+4:]))
			end := offset + (24+length+7)&^7
			if length == 0 || end > len(content) {
				break
			}
			record := content[offset:end]
			if at := bytes.Index(record, []byte(value)); at >= 0 {
				record[at] ^= 1
				binary.LittleEndian.PutUint32(record, crc32.Checksum(record[4:], crc32.MakeTable(crc32.Castagnoli)))
				return os.WriteFile(file, content, 0o600)
			}
			offset = end
		}
	}
	return fmt.Errorf("no record with %q below %s", value, dataDir)
}
