#include "lexer.h"

#include <stdlib.h>
#include <string.h>

static bool word_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%' || c == '.';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(struct lexer *lexer)
{
    while (lexer->at < lexer->end) {
        const char *at = lexer->at;
        size_t left = (size_t)(lexer->end - at);
        if (*at == '\n') {
            lexer->line++;
            lexer->at++;
        } else if (*at == ' ' || *at == '\t' || *at == '\r')
            lexer->at++;
        else if (left >= 2 && at[0] == '/' && at[1] == '/')
            while (lexer->at < lexer->end && *lexer->at != '\n')
                lexer->at++;
        else if (left >= 2 && at[0] == '/' && at[1] == '*') {
            lexer->at += 2;
            while (lexer->at + 1 < lexer->end && !(lexer->at[0] == '*' && lexer->at[1] == '/'))
                lexer->line += *lexer->at++ == '\n';
            lexer->at = lexer->at + 1 < lexer->end ? lexer->at + 2 : lexer->end;
        } else
            return;
    }
}

static void read_bits(struct lexer *lexer, unsigned digits)
{
    struct token *token = &lexer->token;
    char text[17] = "";
    lexer->at += 2;
    if ((size_t)(lexer->end - lexer->at) < digits) {
        lexer->broken = true;
        lexer->at = lexer->end;
        return;
    }
    memcpy(text, lexer->at, digits);
    char *end;
    token->integer = strtoull(text, &end, 16);
    if (end != text + digits)
        lexer->broken = true;
    lexer->at += digits;
    token->kind = TOKEN_FLOAT;
    token->exact_f32 = digits == 8;
    token->exact_f64 = digits == 16;
    if (digits == 8) {
        uint32_t bits = (uint32_t)token->integer;
        float value;
        memcpy(&value, &bits, sizeof value);
        token->number = value;
    } else
        memcpy(&token->number, &token->integer, sizeof token->number);
}

static void read_number(struct lexer *lexer)
{
    struct token *token = &lexer->token;
    char text[64];
    size_t length = 0;
    bool fraction = false;
    if (lexer->end - lexer->at > 2 && lexer->at[0] == '0') {
        char kind = (char)(lexer->at[1] | 0x20);
        if (kind == 'f' || kind == 'd') {
            read_bits(lexer, kind == 'f' ? 8 : 16);
            return;
        }
    }
    bool hexadecimal = lexer->end - lexer->at > 2 && lexer->at[0] == '0' && (lexer->at[1] | 0x20) == 'x';
    while (lexer->at < lexer->end && length < sizeof text - 1) {
        char c = *lexer->at;
        bool sign = !hexadecimal && (c == '-' || c == '+') && length > 0 && (text[length - 1] | 0x20) == 'e';
        if (!word_character(c) && !sign)
            break;
        fraction = fraction || c == '.' || (!hexadecimal && (c | 0x20) == 'e');
        text[length++] = c;
        lexer->at++;
    }
    text[length] = '\0';
    char *end;
    if (fraction) {
        token->kind = TOKEN_FLOAT;
        token->number = strtod(text, &end);
    } else {
        bool binary = text[0] == '0' && (text[1] | 0x20) == 'b';
        token->kind = TOKEN_INTEGER;
        token->integer = binary ? strtoull(text + 2, &end, 2) : strtoull(text, &end, 0);
        end += *end == 'U' || *end == 'u';
    }
    if (*end != '\0')
        lexer->broken = true;
}

void lexer_next(struct lexer *lexer)
{
    struct token *token = &lexer->token;
    skip_space(lexer);
    *token = (struct token){.kind = TOKEN_END, .line = lexer->line, .text = lexer->at};
    if (lexer->at >= lexer->end || *lexer->at == '\0') {
        lexer->at = lexer->end;
        return;
    }
    char c = *lexer->at;
    if (digit(c))
        read_number(lexer);
    else if (word_character(c)) {
        token->kind = TOKEN_WORD;
        while (lexer->at < lexer->end && word_character(*lexer->at))
            lexer->at++;
        /* "::" joins parts of newer opcodes, such as shared::cta. */
        while (lexer->end - lexer->at > 2 && lexer->at[0] == ':' && lexer->at[1] == ':') {
            lexer->at += 2;
            while (lexer->at < lexer->end && word_character(*lexer->at))
                lexer->at++;
        }
    } else if (c == '"') {
        token->kind = TOKEN_STRING;
        lexer->at++;
        while (lexer->at < lexer->end && *lexer->at != '"' && *lexer->at != '\n')
            lexer->at++;
        if (lexer->at < lexer->end && *lexer->at == '"')
            lexer->at++;
        else
            lexer->broken = true;
    } else {
        token->kind = TOKEN_MARK;
        token->mark = c;
        lexer->at++;
        if (strchr("{}[]()<>,;:@!+-=|&*/~", c) == NULL)
            lexer->broken = true;
    }
    token->length = (size_t)(lexer->at - token->text);
}

bool lexer_split(struct lexer *lexer, const char *word)
{
    struct token *token = &lexer->token;
    size_t length = strlen(word);
    if (token->kind != TOKEN_WORD || token->length < length || memcmp(token->text, word, length) != 0 ||
        (token->length > length && token->text[length] != '.'))
        return false;
    lexer->at = token->text + length;
    lexer_next(lexer);
    return true;
}

void lexer_start(struct lexer *lexer, const char *text, size_t length)
{
    *lexer = (struct lexer){.at = text, .end = text + length, .line = 1};
    lexer_next(lexer);
}

bool token_is(const struct token *token, const char *word)
{
    return token->kind == TOKEN_WORD && token->length == strlen(word) &&
           memcmp(token->text, word, token->length) == 0;
}

bool token_is_mark(const struct token *token, char mark)
{
    return token->kind == TOKEN_MARK && token->mark == mark;
}
