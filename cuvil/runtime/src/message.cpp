#include "message.h"

#include <stdarg.h>
#include <stdio.h>

void cuvil::write_message(Message message, const char *format, ...) {
  if (message.text == nullptr || message.size <= 0) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message.text, (size_t)message.size, format, arguments);
  va_end(arguments);
}
