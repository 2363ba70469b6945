/* Put the text of a PTX file into the program, ended by a zero byte, under a name. */
#ifndef EMBEDDED_PTX_H
#define EMBEDDED_PTX_H

#define EMBED_PTX(name, file)                                                                      \
    extern const char name[];                                                                      \
    __asm__(".section .rodata\n.global " #name "\n" #name ":\n.incbin \"" file "\"\n.byte 0\n"      \
            ".previous\n")

#endif
